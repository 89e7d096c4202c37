"""The owners that every test speaks of."""

ANN, BOB = 7, 8
