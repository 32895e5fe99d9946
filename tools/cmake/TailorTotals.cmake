# tailor_test_totals(PYTHON): CTest ends with a line that counts the tests, not only its own entries, and before that with one
# for each entry that was to leave a record, by --json ${TAILOR_SHORT_RECORDS}/NAME.json. It reads CTestCustom.cmake in the build
# tree, and runs what that names before and after everything else.
set(TAILOR_SHORT_RECORDS ${PROJECT_BINARY_DIR}/tests/records)
file(MAKE_DIRECTORY ${TAILOR_SHORT_RECORDS})
set(TAILOR_TOTALS ${CMAKE_CURRENT_LIST_DIR}/../test_totals.py)
function(tailor_test_totals python)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/CTestCustom.cmake @ONLY
    CONTENT [[set(CTEST_CUSTOM_PRE_TEST "\"@python@\" \"@TAILOR_TOTALS@\" begin")
set(CTEST_CUSTOM_POST_TEST "\"@python@\" \"@TAILOR_TOTALS@\"")
]])
endfunction()
