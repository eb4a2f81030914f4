// An owner of a file descriptor, and the protection of the descriptors 0, 1 and 2.
#ifndef TLM_MODEL_BASE_DESCRIPTOR_H_
#define TLM_MODEL_BASE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace tlm {

// Closes on destruction. Move-only.
class Descriptor {
 public:
  // Takes ownership of `fd`; a negative `fd` is no descriptor.
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Opens each of the descriptors 0, 1 and 2 that is closed, so that no file or socket gets its
// number and, with it, the program's log or output. Using it fails as before: 0 is opened for
// writing only, 1 and 2 for reading only. Touches nothing that has to be initialised.
void OpenStandardDescriptors();

}  // namespace tlm

// Belongs in the main file of a program, outside namespaces. It calls OpenStandardDescriptors()
// before the constructors of shared libraries, because those of gRPC open descriptors.
#define TLM_OPEN_STANDARD_DESCRIPTORS_FIRST                                            \
  [[gnu::section(".preinit_array"), gnu::used]] void (*const tlm_before_libraries)() = \
      tlm::OpenStandardDescriptors

#endif  // TLM_MODEL_BASE_DESCRIPTOR_H_
