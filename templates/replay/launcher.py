"""Entry point of the replay flex template: its parameters become the flags of the command that it runs."""

import os
import sys

from pipeline.main import main
from pipeline.options.template import IMAGE, arguments, template_named

if __name__ == "__main__":
    sys.exit(main(arguments(template_named("replay"), sys.argv[1:], image=os.environ.get(IMAGE))))
