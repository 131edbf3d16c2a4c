"""What tests share: tiny federations, faulty parts, grids and clusters of their own."""
