"""An ordinary Flower app whose server trains in chains."""
