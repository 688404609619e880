-- What the load programs of the laboratory call: boo as the study has it; of foo it says the name only.
interface {
  name = minha,
  methods = {
    boo = { resulttype = "void", args = { { direction = "inout", type = "double" } } },
    foo = {
      resulttype = "double",
      args = {
        { direction = "in", type = "double" },
        { direction = "in", type = "double" },
        { direction = "out", type = "string" },
      },
    },
  },
}
