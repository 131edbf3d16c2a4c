"""What a person looks at: figures, reports and pictures. The only room that draws; pictures need the extra `plot`."""
