"""A page to watch runs by: the report, served while training goes on. It only reads run directories."""
