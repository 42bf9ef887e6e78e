# `make install`: the program, the backends, the public headers, and the shared libraries that the
# system does not have, in a folder of our own where only our binaries look.
include(GNUInstallDirs)

set(own "${CMAKE_INSTALL_LIBDIR}/sluice")
file(RELATIVE_PATH from_bin "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}/sluice")

# Where the installed program finds its backends, seen from the folder it is in. In the build folder
# they are in backends/ beside it.
get_target_property(cli_kind room_cli TYPE)
if(NOT cli_kind STREQUAL "INTERFACE_LIBRARY")
    target_compile_definitions(room_cli PRIVATE SLUICE_BACKENDS_FROM_BIN="${from_bin}/backends")
endif()
if(TARGET sluice)
    set_target_properties(sluice PROPERTIES INSTALL_RPATH "\$ORIGIN/${from_bin}")
    install(TARGETS sluice RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

# Not client.h: it is of no use before its library is installed too.
install(DIRECTORY include/sluice DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    FILES_MATCHING PATTERN "*.h" PATTERN "client.h" EXCLUDE)

get_property(backends GLOBAL PROPERTY sluice_backends)
if(backends)
    install(TARGETS ${backends} LIBRARY DESTINATION "${own}/backends")
endif()

foreach(library IN ITEMS "${yyjson_LIBRARY}" "${llhttp_LIBRARY}")
    if(library MATCHES "^${SLUICE_DEPS}/")
        # Every name of the library that the loader may ask for: libNAME.so.0, libNAME.so.0.10.0.
        file(GLOB names "${library}.*")
        install(FILES ${names} DESTINATION "${own}")
    endif()
endforeach()
if(TARGET backend_onnxruntime)
    install(FILES "${onnxruntime_LIBRARY}" DESTINATION "${own}/backends"
        RENAME "libonnxruntime.so.1")
endif()
