# cmake -DFOLDER=DIR -DNAMES="A.toml B.toml" -DOUTPUT=FILE.cc -DSYMBOL=kNames -P embed_texts.cmake
# Makes a C++ file that holds text files of a folder as the array `derate::SYMBOL` of each one's name
# and text in turn, and a null at the end.
string(REPLACE " " ";" NAMES "${NAMES}")
set(rows "")
foreach(name ${NAMES})
  file(READ ${FOLDER}/${name} content)
  string(APPEND rows "\"${name}\", R\"~~~(${content})~~~\",\n")
endforeach()
file(WRITE ${OUTPUT} "namespace derate {\nextern const char* const ${SYMBOL}[];\n"
  "const char* const ${SYMBOL}[] = {\n${rows}nullptr};\n}\n")
