"""Before a launch: is everything there that the job needs, may it be used, and what to do where not."""
