"""Pictures of runs and studies. The only room that draws; it needs the extra `plot`."""
