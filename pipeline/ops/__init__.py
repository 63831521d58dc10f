"""The running job: launching, updating, resizing and stopping it, through a port to the Dataflow API."""
