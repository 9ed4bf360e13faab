"""The one way anything is trained."""
