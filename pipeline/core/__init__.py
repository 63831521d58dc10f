"""The pure part: no Beam, no TensorFlow; plans, decodes, validates and accounts for rows."""
