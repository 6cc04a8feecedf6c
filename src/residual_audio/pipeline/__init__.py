"""The main job: from a model and a data set to a page, step by step, each resumable."""
