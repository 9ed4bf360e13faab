"""Linear regression with a law of coefficients: units, robust starts, evidence, laws, training, calibration."""
