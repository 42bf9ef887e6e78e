/* Asks a server over TLS whether it is ready, with an API key:
 *     health https://HOST[:PORT] CA_FILE KEY
 *
 *     c++ -std=c++17 health.cpp -o health $(pkg-config --cflags --libs sluice)
 *
 * health.c is the same in C. */
#include <iostream>

#include <sluice/client.hpp>

int main(int argc, char **argv) {
    if (argc != 4) {
        std::cerr << "usage: health URL CA_FILE KEY\n";
        return 2;
    }
    auto tls = sluice::sized<sluice_tls_options>();
    tls.ca_file = argv[2];
    auto options = sluice::sized<sluice_client_options>();
    options.url = argv[1];
    options.tls = &tls;
    options.bearer_token = argv[3];
    try {
        bool ready = sluice::client::open(options).value().is_ready().value();
        std::cout << (ready ? "ready\n" : "not ready\n");
        return !ready;
    } catch (const sluice::error &error) {
        std::cerr << "health: " << error.what() << '\n';
        return 1;
    }
}
