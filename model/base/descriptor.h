// File descriptors.
#ifndef TLM_MODEL_BASE_DESCRIPTOR_H_
#define TLM_MODEL_BASE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace tlm {

// Closes on destruction. Move-only.
class Descriptor {
 public:
  // Takes `fd`; negative: none.
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

// Opens those of the descriptors 0, 1 and 2 that are closed, so that no file or socket gets their
// numbers and with them the program's log or output. Using them fails as before: 0 is
// open for writing alone, 1 and 2 for reading alone. Touches nothing that has to be initialised.
void OpenStandardDescriptors();

}  // namespace tlm

// In the main file of a program, outside namespaces: calls it before the constructors of shared
// libraries, as gRPC's open descriptors.
#define TLM_OPEN_STANDARD_DESCRIPTORS_FIRST                                            \
  [[gnu::section(".preinit_array"), gnu::used]] void (*const tlm_before_libraries)() = \
      tlm::OpenStandardDescriptors

#endif  // TLM_MODEL_BASE_DESCRIPTOR_H_
