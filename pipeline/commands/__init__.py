"""One module a command: ``execute(arguments, beam_arguments) -> exit code``; imported only when called."""
