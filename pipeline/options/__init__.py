"""Every option and every command, declared once and importing next to nothing, so that help is fast."""
