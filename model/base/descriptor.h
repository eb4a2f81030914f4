// A file descriptor with an owner.
#ifndef TLM_MODEL_BASE_DESCRIPTOR_H_
#define TLM_MODEL_BASE_DESCRIPTOR_H_

#include <unistd.h>

namespace tlm {

// Closes on destruction.
class Descriptor {
 public:
  // Takes `fd`; negative: none.
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace tlm

#endif  // TLM_MODEL_BASE_DESCRIPTOR_H_
