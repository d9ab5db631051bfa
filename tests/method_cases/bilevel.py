"""Methods for bilevel problems, with and without a max player: name -> function(problem) -> method."""

METHODS = {}
