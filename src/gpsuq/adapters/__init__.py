"""Models in the clothes of other tools: skpro, MLflow, Hugging Face."""
