"""Local stand-ins for Pub/Sub and Cloud Storage: found, started, watched and stopped."""
