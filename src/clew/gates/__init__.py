"""Gates: middleware that looks at what is about to happen and says whether it may.

One file for each gate; each works alone. Give them to `Settings(gates=...)` for the whole process,
or to `clew.run(..., gates=...)` on top. A gate of your own is any object with `name`, `mode`,
`mandatory`, `kinds` and `check` (see `clew.typing.Gate`).
"""
