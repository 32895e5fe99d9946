# tailor_test_totals(PYTHON): CTest ends with a line that counts the tests, not only its own entries. It reads
# CTestCustom.cmake in the build tree, and runs what that names after everything else.
set(TAILOR_TOTALS ${CMAKE_CURRENT_LIST_DIR}/../test_totals.py)
function(tailor_test_totals python)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/CTestCustom.cmake @ONLY
    CONTENT [[set(CTEST_CUSTOM_POST_TEST "\"@python@\" \"@TAILOR_TOTALS@\"")
]])
endfunction()
