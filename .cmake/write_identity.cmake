# Writes OUT, the source of an ELF note with a hash of TEXT and of FILES, which are relative to ROOT.
set(text "${TEXT}\n")
foreach(file IN LISTS FILES)
  file(SHA256 "${ROOT}/${file}" hash)
  string(APPEND text "${file} ${hash}\n")
endforeach()
string(SHA256 hash "${text}")
string(SUBSTRING "${hash}" 0 40 hash)
file(WRITE "${OUT}" "// The identity of this program, as an ELF note of the owner `tlm`.
asm(\".pushsection .note.tlm, \\\"a\\\", %note\\n\"
    \".balign 4\\n.long 4, 40, 1\\n.asciz \\\"tlm\\\"\\n.ascii \\\"${hash}\\\"\\n.popsection\");
")
