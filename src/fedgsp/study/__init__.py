"""Studies: many runs that answer one question. Each unit is a run directory, so a study can be stopped and gone on with."""
