-- What the drivers of bindings/tests/drivers offer and call: each type in each direction, and methods that go wrong.
interface {
  name = suite,
  methods = {
    boo = { resulttype = "void", args = { { direction = "inout", type = "double" } } },
    add = { resulttype = "double", args = { { direction = "in", type = "double" }, { direction = "in", type = "double" } } },
    echo = { resulttype = "string", args = { { direction = "in", type = "string" } } },
    nothing = { args = {} },
    char = { resulttype = "char", args = { { direction = "in", type = "char" } } },
    letter = { resulttype = "char" },
    all = {
      resulttype = "double",
      args = {
        { direction = "in", type = "char" },
        { direction = "out", type = "char" },
        { direction = "inout", type = "string" },
        { direction = "in", type = "void" },
        { direction = "inout", type = "double" },
        { direction = "out", type = "void" },
        { direction = "out", type = "string" },
      },
    },
    booCount = { resulttype = "double" },
    fail = { resulttype = "double", args = { { direction = "in", type = "string" } } },
    returnsText = { resulttype = "double" },
    returnsTooFew = { resulttype = "double", args = { { direction = "out", type = "double" } } },
    returnsInfinity = { resulttype = "double" },
    returnsAnError = { resulttype = "string" },
    long = { resulttype = "string", args = { { direction = "in", type = "double" } } },
  },
}
