#include "client/openai/http/exchange.h"

#include <algorithm>
#include <cstring>

namespace tlm::openai {

std::string HttpRequest::Header(const std::string& lower_case_name) const {
  const auto found = headers.find(lower_case_name);
  return found == headers.end() ? "" : found->second;
}

void Exchange::ResumeLocked() {
  if (std::exchange(suspended_, false)) resume_();
}

void Exchange::Respond(ResponseHead head, std::string body) {
  std::lock_guard<std::mutex> lock(mutex_);
  head_ = std::move(head);
  buffer_ = std::move(body);
  ended_ = true;
  ResumeLocked();
}

void Exchange::BeginStream(ResponseHead head) {
  std::lock_guard<std::mutex> lock(mutex_);
  head_ = std::move(head);
  stream_ = true;
  ResumeLocked();
}

bool Exchange::Write(std::string_view bytes) {
  std::unique_lock<std::mutex> lock(mutex_);
  writable_.wait(lock, [this] { return gone_ || buffer_.size() - read_ < kMaxBuffered; });
  if (gone_) return false;
  buffer_.append(bytes);
  ResumeLocked();
  return true;
}

void Exchange::End() {
  std::lock_guard<std::mutex> lock(mutex_);
  ended_ = true;
  ResumeLocked();
}

int Exchange::status() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return head_ ? head_->status : 0;
}

std::optional<ResponseHead> Exchange::HeadOrSuspend(const std::function<void()>& suspend) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!head_) {
    suspended_ = true;
    suspend();
  }
  return head_;
}

bool Exchange::is_stream() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return stream_;
}

std::string Exchange::TakeBody() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::move(buffer_);
}

long Exchange::Read(char* out, size_t size, const std::function<void()>& suspend) {
  std::lock_guard<std::mutex> lock(mutex_);
  const size_t count = std::min(size, buffer_.size() - read_);
  if (count == 0) {
    if (ended_ || gone_) return -1;
    suspended_ = true;
    suspend();
    return 0;
  }
  std::memcpy(out, buffer_.data() + read_, count);
  read_ += count;
  if (read_ == buffer_.size()) {
    buffer_.clear();
    read_ = 0;
  } else if (read_ >= kMaxBuffered) {
    buffer_.erase(0, read_);
    read_ = 0;
  }
  writable_.notify_all();
  return static_cast<long>(count);
}

void Exchange::OnGone() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    gone_ = true;
    writable_.notify_all();
  }
  cancel_.Cancel();
}

}  // namespace tlm::openai
