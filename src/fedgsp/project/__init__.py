"""`fedgsp new`: a project to be edited, with a config, a model, a rule, a notebook and a test that passes."""
