"""What a person looks at: data inspected, and pictures. The only room that draws."""
