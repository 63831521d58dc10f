"""What tests share: the command line in-process, runs read back, storage that fails, a storage emulator."""
