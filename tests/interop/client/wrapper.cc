// What sluice/client.hpp has, against a server with the models of examples/client: wrapper HTTP_URL GRPC_URL.
// Prints what is wrong, or nothing.
#include <cstring>
#include <iostream>

#include <sluice/client.hpp>

static int n_wrong = 0;

#define CHECK(holds)                                                                               \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            std::cout << "line " << __LINE__ << ": " << #holds << '\n';                            \
            n_wrong++;                                                                             \
        }                                                                                          \
    } while (false)

static void infer(sluice::client &client) {
    const std::vector<float> numbers{1, 2.5F, -3};
    sluice::request request("numbers");
    request.id("seven").input("IN", numbers, {3}).want("OUT");
    request.param("a", 1).param("b", 1.5).param("c", true).param("d", "text");
    sluice::call call = client.infer(request).value();
    sluice::output output = call.output("OUT").value();
    CHECK(output.name() == "OUT" && output.dims().size() == 1 && output.dims()[0] == 3);
    CHECK(output.read<float>().value() == numbers);
    CHECK(output.view<float>().value()[1] == 2.5F);
    CHECK(output.read<double>().status() == SLUICE_CLIENT_INVALID);
    CHECK(!output.view<std::int32_t>() && !output.strings());
    CHECK(call.output("NONE").status() == SLUICE_CLIENT_NOT_FOUND);
    CHECK(call.header("content-type") && !call.header("none"));

    sluice::request moved = std::move(request);
    CHECK(client.start_infer(moved).value().wait().value());
    sluice::call cancelled = client.start_infer(moved).value();
    CHECK(cancelled.status() == SLUICE_CLIENT_PENDING);
    cancelled.cancel();
    CHECK(cancelled.wait().status() == SLUICE_CLIENT_CANCELLED);
}

static void strings(sluice::client &client) {
    const std::vector<std::string> texts{"a", "", std::string("\0b", 2), std::string(300, 'x')};
    sluice::request request("text");
    request.strings("IN", texts, {4, 1});
    CHECK(client.infer(request).value().output("OUT").value().strings().value() == texts);
}

static void errors(sluice::client &client) {
    const std::vector<float> numbers{1, 2};
    sluice::request absent("absent"), wrong("numbers");
    absent.input("IN", numbers, {2});
    wrong.input("IN", numbers, {3});
    CHECK(client.infer(wrong).status() == SLUICE_CLIENT_INVALID);
    auto failed = client.infer(absent);
    CHECK(!failed && failed.status() == SLUICE_CLIENT_SERVER_ERROR);
    try {
        (void)failed.value();
        CHECK(false);
    } catch (const sluice::error &error) {
        CHECK(error.status() == SLUICE_CLIENT_SERVER_ERROR && std::strstr(error.what(), "absent"));
        CHECK(error.details().http_status == 404 || error.details().grpc_status == 5);
    }
    CHECK(sluice::client::open("nonsense").status() == SLUICE_CLIENT_INVALID);
}

static void others(sluice::client &client) {
    CHECK(client.is_live().value() && client.is_ready().value());
    CHECK(client.model_is_ready("text").value() && !client.model_is_ready("absent").value());
    sluice::call index =
        client
            .run([&](auto **out, auto *failed) {
                return sluice_client_repository_index(client.handle(), nullptr, out, failed);
            })
            .value();
    CHECK(index.text().value().find("\"numbers\"") != std::string_view::npos);
    CHECK(client.timeout_ns() == UINT64_MAX && client.fd() >= 0);
    client.step();
}

static void stream(sluice::client &client) {
    sluice::request request("tokens");
    request.strings("IN", {"token"}, {1}).param("responses", 3);
    sluice::call call = client.start_stream().value();
    CHECK(call.send(request).value());
    call.half_close();
    int n = 0;
    while (call.next().value()) {
        CHECK(call.output("OUT").value().strings().value()[0] == "token");
        n++;
    }
    CHECK(n == 3 && !call.next().value());
}

int main(int, char **argv) {
    for (int i = 1; i <= 2; i++) {
        sluice::client client = sluice::client::open(argv[i]).value();
        infer(client);
        strings(client);
        errors(client);
        others(client);
        if (i == 2) {
            stream(client);
        }
    }
    return n_wrong > 0;
}
