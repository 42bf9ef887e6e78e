# libsluice_envoy.so, the picker as a dynamic module of Envoy: envoy/libsluice_envoy.so in the build folder. It
# exports the functions that Envoy calls; those that it calls are in the Envoy that loads it, so they stay undefined.
# Its heap is Envoy's.
add_library(sluice_envoy MODULE src/program/envoy/module.c)
target_link_libraries(sluice_envoy PRIVATE module_program_envoy)
set_target_properties(sluice_envoy PROPERTIES
    PREFIX "lib" SUFFIX ".so" LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/envoy"
    LINK_DEPENDS "${CMAKE_SOURCE_DIR}/cmake/envoy.map")
target_link_options(sluice_envoy PRIVATE -Wl,--as-needed "-Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/envoy.map")
