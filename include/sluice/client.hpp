/* libsluice for C++17: sluice/client.h with objects that free themselves, typed tensors and results
 * that can't be mistaken for a value. Header-only; link with libsluice as a C program does.
 *
 *     sluice::client client = sluice::client::open("http://127.0.0.1:8000").value();
 *     std::vector<float> numbers{1, 2, 3};
 *     sluice::request request("numbers");
 *     request.input("IN", numbers, {3});
 *     sluice::call call = client.infer(request).value();
 *     for (float number : call.output("OUT").value().read<float>().value()) …
 *
 * Errors: a function that can fail returns a result. value() of a failed one throws sluice::error;
 * in a program without exceptions it ends the program: test the result first.
 *
 * Lifetimes: a request borrows the numbers of its inputs, and a call its request, until it is done;
 * an output is a view of its call, a call must not outlive its client. Threads: as client.h. What
 * has no function here is done with the C functions, by handle(). */
#ifndef SLUICE_CLIENT_HPP
#define SLUICE_CLIENT_HPP

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "sluice/client.h"

namespace sluice {

/* A struct of client.h: zeros, and its size. */
template <class T> T sized() {
    T made{};
    made.size = sizeof(T);
    return made;
}

/* ---- errors ---------------------------------------------------------------------------------- */

class error : public std::runtime_error {
public:
    explicit error(const sluice_client_error &from)
        : std::runtime_error(std::string(sluice_status_name(from.status)) + ": " + from.text),
          details_(from) {}
    sluice_client_status status() const { return details_.status; }
    const sluice_client_error &details() const { return details_; }

private:
    sluice_client_error details_;
};

/* A value, or why there is none. */
template <class T> class result {
public:
    result(T &&value) : value_(std::move(value)), error_(sized<sluice_client_error>()) {}
    result(const sluice_client_error &failed) : error_(failed) {}
    /* Without an error of its own. */
    result(sluice_client_status status) : error_(sized<sluice_client_error>()) {
        error_.status = status;
        error_.mip_error = -1;
        const char *text = sluice_strerror(status);
        for (std::size_t i = 0; i + 1 < sizeof(error_.text) && text[i] != '\0'; i++) {
            error_.text[i] = text[i];
        }
    }
    explicit operator bool() const { return value_.has_value(); }
    sluice_client_status status() const { return value_ ? SLUICE_CLIENT_OK : error_.status; }
    const sluice_client_error &failure() const { return error_; }
    T &value() & { return check(), *value_; }
    const T &value() const & { return check(), *value_; }
    T value() && { return check(), std::move(*value_); }

private:
    void check() const {
        if (!value_) {
#if defined(__cpp_exceptions)
            throw error(error_);
#else
            std::abort();
#endif
        }
    }
    std::optional<T> value_;
    sluice_client_error error_;
};

/* ---- tensors --------------------------------------------------------------------------------- */

/* Elements in memory of another object. */
template <class T> class span {
public:
    span(const T *data, std::size_t n) : data_(data), n_(n) {}
    const T *data() const { return data_; }
    std::size_t size() const { return n_; }
    const T *begin() const { return data_; }
    const T *end() const { return data_ + n_; }
    const T &operator[](std::size_t index) const { return data_[index]; }

private:
    const T *data_;
    std::size_t n_;
};

template <class T> constexpr sluice_datatype datatype_of() {
    using std::is_same_v;
    static_assert(std::is_arithmetic_v<T> && !is_same_v<T, bool>, "numbers, and std::uint8_t");
    if constexpr (std::is_floating_point_v<T>) {
        static_assert(sizeof(T) == 4 || sizeof(T) == 8, "float or double");
        return sizeof(T) == 4 ? SLUICE_FP32 : SLUICE_FP64;
    } else { /* the numbers of client.h follow each other */
        constexpr int index = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
        return sluice_datatype((std::is_signed_v<T> ? SLUICE_INT8 : SLUICE_UINT8) + index);
    }
}

/* An output of an answer. */
class output {
public:
    explicit output(const sluice_tensor &tensor) : tensor_(tensor) {}
    std::string_view name() const { return tensor_.name; }
    sluice_datatype datatype() const { return tensor_.datatype; }
    span<std::int64_t> dims() const { return {tensor_.dims, tensor_.rank}; }
    const sluice_tensor &handle() const { return tensor_; }
    /* Its numbers where they are. SLUICE_CLIENT_INVALID for another datatype, and where they are
     * not aligned for T: read() copies them. */
    template <class T> result<span<T>> view() const {
        bool fits = tensor_.datatype == datatype_of<T>() && tensor_.data &&
                    reinterpret_cast<std::uintptr_t>(tensor_.data) % alignof(T) == 0;
        if (!fits) {
            return SLUICE_CLIENT_INVALID;
        }
        return span<T>(static_cast<const T *>(tensor_.data), tensor_.n_bytes / sizeof(T));
    }
    template <class T> result<std::vector<T>> read() const {
        std::vector<T> numbers(tensor_.n_bytes / sizeof(T));
        sluice_client_status status =
            sluice_tensor_read(&tensor_, datatype_of<T>(), numbers.data(), numbers.size());
        if (status != SLUICE_CLIENT_OK) {
            return status;
        }
        return numbers;
    }
    /* The elements of a BYTES tensor. */
    result<std::vector<std::string>> strings() const {
        std::vector<std::string> texts;
        std::size_t at = 0, n = 0;
        const char *text = nullptr;
        sluice_client_status status;
        while ((status = sluice_strings_next(&tensor_, &at, &text, &n)) == SLUICE_CLIENT_OK) {
            texts.emplace_back(text, n);
        }
        if (status != SLUICE_CLIENT_NOT_FOUND) {
            return status;
        }
        return texts;
    }

private:
    sluice_tensor tensor_;
};

/* An inference. Names, shapes and strings are copied, numbers are not. */
class request {
public:
    explicit request(std::string model) : model_(std::move(model)) {}
    request &version(std::string version) { return version_ = std::move(version), *this; }
    request &id(std::string id) { return id_ = std::move(id), *this; }
    request &form(sluice_form form) { return form_ = form, *this; }
    /* `numbers` must stay until the call is done. If its size is not that of `dims`, the call fails
     * with SLUICE_CLIENT_INVALID. */
    template <class T>
    request &input(std::string name, const T *numbers, std::size_t n,
                   std::vector<std::int64_t> dims) {
        return add(std::move(name), datatype_of<T>(), numbers, n * sizeof(T), std::move(dims));
    }
    template <class T>
    request &input(std::string name, const std::vector<T> &numbers,
                   std::vector<std::int64_t> dims) {
        return input(std::move(name), numbers.data(), numbers.size(), std::move(dims));
    }
    request &strings(std::string name, const std::vector<std::string> &texts,
                     std::vector<std::int64_t> dims) {
        std::string &packed = texts_.emplace_back();
        for (const std::string &text : texts) {
            for (unsigned shift = 0; shift < 32; shift += 8) {
                packed += static_cast<char>(text.size() >> shift & 255);
            }
            packed += text;
        }
        return add(std::move(name), SLUICE_BYTES, packed.data(), packed.size(), std::move(dims));
    }
    /* Of which the server sends only those; `n_classes`: see sluice_wanted. */
    request &want(std::string name, std::uint32_t n_classes = 0) {
        sluice_wanted &wanted = wanted_.emplace_back(sized<sluice_wanted>());
        wanted.name = texts_.emplace_back(std::move(name)).c_str();
        wanted.n_classes = n_classes;
        return *this;
    }
    request &param(std::string name, std::int64_t value) {
        return keep(sluice_parameter_int64(nullptr, value), std::move(name));
    }
    request &param(std::string name, int value) {
        return param(std::move(name), static_cast<std::int64_t>(value));
    }
    request &param(std::string name, double value) {
        return keep(sluice_parameter_double(nullptr, value), std::move(name));
    }
    request &param(std::string name, bool value) {
        return keep(sluice_parameter_bool(nullptr, value), std::move(name));
    }
    request &param(std::string name, const char *value) {
        const std::string &text = texts_.emplace_back(value);
        return keep(sluice_parameter_string(nullptr, text.c_str()), std::move(name));
    }
    /* The C struct, a view of this object. */
    sluice_infer_request handle() const {
        auto made = sized<sluice_infer_request>();
        made.model = model_.c_str();
        made.version = version_.empty() ? nullptr : version_.c_str();
        made.id = id_.empty() ? nullptr : id_.c_str();
        made.inputs = inputs_.data(), made.n_inputs = inputs_.size();
        made.wanted = wanted_.data(), made.n_wanted = wanted_.size();
        made.params = params_.data(), made.n_params = params_.size();
        made.form = form_;
        return made;
    }
    request(request &&) = default;
    request(const request &) = delete;
    request &operator=(const request &) = delete;

private:
    request &add(std::string name, sluice_datatype datatype, const void *data, std::size_t n_bytes,
                 std::vector<std::int64_t> dims) {
        auto &tensor = inputs_.emplace_back(sized<sluice_tensor>());
        const auto &kept = dims_.emplace_back(std::move(dims));
        tensor.name = texts_.emplace_back(std::move(name)).c_str();
        tensor.datatype = datatype;
        tensor.dims = kept.data(), tensor.rank = kept.size();
        tensor.data = data, tensor.n_bytes = n_bytes;
        return *this;
    }
    request &keep(sluice_parameter param, std::string name) {
        param.name = texts_.emplace_back(std::move(name)).c_str();
        params_.push_back(param);
        return *this;
    }
    std::string model_, version_, id_;
    sluice_form form_ = SLUICE_FORM_BINARY;
    std::vector<sluice_tensor> inputs_;
    std::vector<sluice_wanted> wanted_;
    std::vector<sluice_parameter> params_;
    std::deque<std::string> texts_; /* its elements stay where they are */
    std::deque<std::vector<std::int64_t>> dims_;
};

/* ---- calls ----------------------------------------------------------------------------------- */

class call {
public:
    explicit call(sluice_call *from) : call_(from) {}
    sluice_call *handle() const { return call_.get(); }
    sluice_client_status status() const { return sluice_call_status(call_.get(), nullptr); }
    void cancel() { sluice_call_cancel(call_.get()); }
    /* Blocks until the call is done. Returns: its results can be read. */
    result<bool> wait() {
        auto failed = sized<sluice_client_error>();
        return sluice_call_wait(call_.get(), &failed) == SLUICE_CLIENT_OK ? result<bool>(true)
                                                                          : result<bool>(failed);
    }
    /* Of a stream: blocks until the next answer. Returns: false after the last one. */
    result<bool> next() {
        auto failed = sized<sluice_client_error>();
        sluice_client_status status = sluice_call_wait_next(call_.get(), &failed);
        return status < 0 ? result<bool>(failed) : result<bool>(status == SLUICE_CLIENT_OK);
    }
    result<bool> send(const request &request) {
        auto failed = sized<sluice_client_error>();
        sluice_infer_request made = request.handle();
        sluice_client_status status = sluice_call_send(call_.get(), &made, &failed);
        return status < 0 ? result<bool>(failed) : result<bool>(status == SLUICE_CLIENT_OK);
    }
    void half_close() { sluice_call_half_close(call_.get()); }
    result<sluice::output> output(const char *name) const {
        auto tensor = sized<sluice_tensor>();
        sluice_client_status status = sluice_call_find_output(call_.get(), name, &tensor);
        return status == SLUICE_CLIENT_OK ? result<sluice::output>(sluice::output(tensor))
                                          : result<sluice::output>(status);
    }
    std::optional<std::string_view> header(const char *name) const {
        auto found = sized<sluice_header>();
        if (sluice_call_find_header(call_.get(), name, &found) != SLUICE_CLIENT_OK) {
            return std::nullopt;
        }
        return std::string_view(found.value, found.value_bytes);
    }
    /* A JSON document, or generated text. */
    result<std::string_view> text() const {
        const char *text = nullptr;
        std::size_t n = 0;
        sluice_client_status status = sluice_call_text(call_.get(), &text, &n);
        return status == SLUICE_CLIENT_OK ? result<std::string_view>(std::string_view(text, n))
                                          : result<std::string_view>(status);
    }

private:
    struct deleter {
        void operator()(sluice_call *from) const { sluice_call_free(from); }
    };
    std::unique_ptr<sluice_call, deleter> call_;
};

/* ---- the client ------------------------------------------------------------------------------ */

class client {
public:
    static result<client> open(const sluice_client_options &options) {
        auto failed = sized<sluice_client_error>();
        sluice_client *made = nullptr;
        if (sluice_client_open(&options, &made, &failed) != SLUICE_CLIENT_OK) {
            return failed;
        }
        return client(made);
    }
    static result<client> open(const char *url) {
        auto options = sized<sluice_client_options>();
        options.url = url;
        return open(options);
    }
    sluice_client *handle() const { return client_.get(); }

    using options = sluice_call_options;
    result<bool> is_live(const options *with = nullptr) {
        return yes([&](auto *answer, auto *failed) {
            return sluice_client_is_live(handle(), with, answer, failed);
        });
    }
    result<bool> is_ready(const options *with = nullptr) {
        return yes([&](auto *answer, auto *failed) {
            return sluice_client_is_ready(handle(), with, answer, failed);
        });
    }
    result<bool> model_is_ready(const char *model, const options *with = nullptr) {
        return yes([&](auto *answer, auto *failed) {
            return sluice_client_model_is_ready(handle(), model, nullptr, with, answer, failed);
        });
    }
    result<call> infer(const request &request, const options *with = nullptr) {
        sluice_infer_request made = request.handle();
        return run([&](auto **out, auto *failed) {
            return sluice_client_infer(handle(), &made, with, out, failed);
        });
    }
    result<call> start_infer(const request &request, const options *with = nullptr) {
        sluice_infer_request made = request.handle();
        return run([&](auto **out, auto *failed) {
            return sluice_client_start_infer(handle(), &made, with, out, failed);
        });
    }
    result<call> start_stream(const options *with = nullptr) {
        return run([&](auto **out, auto *failed) {
            return sluice_client_start_stream(handle(), with, out, failed);
        });
    }
    /* For an event loop; see client.h. */
    int fd() const { return sluice_client_fd(handle()); }
    std::uint64_t timeout_ns() const { return sluice_client_timeout_ns(handle()); }
    void step() { sluice_client_step(handle()); }

    /* Any other call of client.h: run([&](auto **out, auto *failed) {
     *     return sluice_client_statistics(handle, "m", nullptr, nullptr, out, failed); }) */
    template <class Function> result<call> run(Function &&function) {
        auto failed = sized<sluice_client_error>();
        sluice_call *made = nullptr;
        sluice_client_status status = function(&made, &failed);
        call owned(made);
        return status == SLUICE_CLIENT_OK ? result<call>(std::move(owned)) : result<call>(failed);
    }

private:
    explicit client(sluice_client *from) : client_(from) {}
    template <class Function> result<bool> yes(Function &&function) {
        auto failed = sized<sluice_client_error>();
        std::int32_t answer = 0;
        return function(&answer, &failed) == SLUICE_CLIENT_OK ? result<bool>(answer != 0)
                                                              : result<bool>(failed);
    }
    struct deleter {
        void operator()(sluice_client *from) const { sluice_client_close(from); }
    };
    std::unique_ptr<sluice_client, deleter> client_;
};

} /* namespace sluice */

#endif
