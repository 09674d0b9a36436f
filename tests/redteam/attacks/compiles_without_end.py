# expect: rejected|timeout
# Way of cheating number 67: time spent compiling is not its own, so it compiles for ever
import warpsmith

for number in range(100000):
    try:
        warpsmith.load_cpp(f'extern "C" void f() {{ oops; }} // {number}')
    except Exception:
        pass
