# cmake -DINPUT=FILE -DOUTPUT=FILE.cc -DSYMBOL=kName -P embed_text.cmake
# Makes a C++ file that holds a text file as `derate::SYMBOL`.
file(READ ${INPUT} content)
file(WRITE ${OUTPUT} "namespace derate {\nextern const char* const ${SYMBOL};\n"
  "const char* const ${SYMBOL} = R\"~~~(${content})~~~\";\n}\n")
