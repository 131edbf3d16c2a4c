"""What a person looks at: data inspected, pictures of runs and studies. The only room that draws (extra `plot`)."""
