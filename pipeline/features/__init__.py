"""TensorFlow and TFT, without Beam: feature spec, preprocessing, layouts, transform."""
