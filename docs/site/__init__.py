"""The documentation site: what Sphinx needs beside the pages."""
