"""The port to the Dataflow API: nouns and what can be asked for, and the implementation on Google's client."""
