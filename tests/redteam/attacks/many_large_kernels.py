# expect: compile_error
# Way of cheating number 66: shared objects of 60 MB, as many as there is time for, to fill the judge's disk
import warpsmith

for number in range(1000):
    warpsmith.load_cpp(f'asm(".data\\n.fill 60000000,1,{number % 255}"); extern "C" void f() {{}} // {number}')
