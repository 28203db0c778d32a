//! What is a GPU doing just now: load, memory, power, temperature, clocks, and what holds its clocks back.
//!
//! In:  a device by CUDA's number. Out: figures, each absent where the card or its driver does not tell it.
//!
//! NVML's functions are looked up in the library that the driver brought; an absent library only means that there is nothing to
//! tell. NVML counts cards in another order than CUDA may, so a card is found by its place on the bus.
//!
//! Never changes a setting of the card. Source: the NVML API reference; layouts are those of nvml.h, which have not changed since
//! their first version.

/// What a GPU is doing. Shares are 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct GpuFigures {
    /// Share of the last moments in which a kernel ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f32>,
    /// Share in which memory was read or written; not how full it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_load: Option<f32>,
    /// Of all programs on the card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_watts: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_watts: Option<f32>,
    /// In degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_clock_mhz: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_clock_mhz: Option<u32>,
    /// What holds the clocks back; empty when nothing does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub throttle: Vec<Throttle>,
}

/// Why a card runs slower than it could.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Throttle {
    /// The power limit is reached: usual under full load.
    PowerCap,
    /// Too hot.
    Heat,
    /// The supply or the board asks for less.
    PowerSupply,
    /// The card slows down by itself, for heat or power.
    Hardware,
    /// Someone set lower clocks.
    Setting,
}

impl Throttle {
    pub fn title(self) -> &'static str {
        match self {
            Self::PowerCap => "power limit",
            Self::Heat => "heat",
            Self::PowerSupply => "power supply",
            Self::Hardware => "hardware slowdown",
            Self::Setting => "clock setting",
        }
    }

    /// Whether it is a fault to be mended, and not how cards work under load or were set.
    pub fn is_fault(self) -> bool {
        matches!(self, Self::Heat | Self::PowerSupply | Self::Hardware)
    }
}

/// What NVML's bits mean; idle cards and displays hold nothing back that matters.
#[cfg(any(feature = "cuda", test))]
fn throttle_of(bits: u64) -> Vec<Throttle> {
    const REASONS: [(u64, Throttle); 5] = [
        (0x4, Throttle::PowerCap),
        (0x20 | 0x40, Throttle::Heat),
        (0x80, Throttle::PowerSupply),
        (0x8, Throttle::Hardware),
        (0x2 | 0x10, Throttle::Setting),
    ];
    REASONS.iter().filter(|(mask, _)| bits & mask != 0).map(|(_, reason)| *reason).collect()
}

#[cfg(feature = "cuda")]
pub use with_cuda::GpuMonitor;

#[cfg(feature = "cuda")]
mod with_cuda {
    use std::ffi::{CStr, c_char, c_int, c_void};

    use cudarc::driver::{result, sys};

    use super::{GpuFigures, throttle_of};
    use crate::engine::cuda::library;
    use crate::engine::cuda::library::{Library, OpenLibrary};

    type Handle = *mut c_void;
    type GetNumber = unsafe extern "C" fn(Handle, *mut u32) -> c_int;
    type GetNumberOfKind = unsafe extern "C" fn(Handle, c_int, *mut u32) -> c_int;

    /// `nvmlUtilization_t`: percent.
    #[repr(C)]
    #[derive(Default)]
    struct Utilization {
        gpu: u32,
        memory: u32,
    }

    /// `nvmlMemory_t`: bytes.
    #[repr(C)]
    #[derive(Default)]
    struct Memory {
        total: u64,
        free: u64,
        used: u64,
    }

    /// `NVML_CLOCK_SM`, `NVML_CLOCK_MEM`, `NVML_TEMPERATURE_GPU`.
    const CLOCK_SM: c_int = 1;
    const CLOCK_MEMORY: c_int = 2;
    const TEMPERATURE_GPU: c_int = 0;

    /// The functions; absent are those that the driver's version lacks.
    struct Functions {
        shutdown: Option<unsafe extern "C" fn() -> c_int>,
        utilization: Option<unsafe extern "C" fn(Handle, *mut Utilization) -> c_int>,
        memory: Option<unsafe extern "C" fn(Handle, *mut Memory) -> c_int>,
        power: Option<GetNumber>,
        power_limit: Option<GetNumber>,
        temperature: Option<GetNumberOfKind>,
        clock: Option<GetNumberOfKind>,
        max_clock: Option<GetNumberOfKind>,
        throttle: Option<unsafe extern "C" fn(Handle, *mut u64) -> c_int>,
    }

    impl Functions {
        fn of(library: &OpenLibrary) -> Self {
            // SAFETY: each type is that of the function in nvml.h.
            unsafe {
                Self {
                    shutdown: library.function(c"nvmlShutdown").ok(),
                    utilization: library.function(c"nvmlDeviceGetUtilizationRates").ok(),
                    memory: library.function(c"nvmlDeviceGetMemoryInfo").ok(),
                    power: library.function(c"nvmlDeviceGetPowerUsage").ok(),
                    power_limit: library.function(c"nvmlDeviceGetEnforcedPowerLimit").ok(),
                    temperature: library.function(c"nvmlDeviceGetTemperature").ok(),
                    clock: library.function(c"nvmlDeviceGetClockInfo").ok(),
                    max_clock: library.function(c"nvmlDeviceGetMaxClockInfo").ok(),
                    throttle: library.function(c"nvmlDeviceGetCurrentClocksThrottleReasons").ok(),
                }
            }
        }
    }

    /// A card that is looked at again and again.
    pub struct GpuMonitor {
        functions: Functions,
        card: Handle,
    }

    // SAFETY: NVML's functions may be called from any thread, and the handle is only a key for them.
    unsafe impl Send for GpuMonitor {}

    impl GpuMonitor {
        /// The card that CUDA counts as `ordinal`; `None` without NVML, or where it does not know the card.
        pub fn open(ordinal: usize) -> Option<Self> {
            let bus_id = bus_id(ordinal)?;
            let library = library::open(Library::Nvml).ok()?;
            // SAFETY: the types are those of nvml.h; the name is terminated, and `card` is a live variable. NVML counts how often
            // it was started, and `drop` ends our time.
            unsafe {
                let init: unsafe extern "C" fn() -> c_int = library.function(c"nvmlInit_v2").ok()?;
                let find: unsafe extern "C" fn(*const c_char, *mut Handle) -> c_int =
                    library.function(c"nvmlDeviceGetHandleByPciBusId_v2").ok()?;
                if init() != 0 {
                    return None;
                }
                let mut monitor = Self { functions: Functions::of(library), card: std::ptr::null_mut() };
                (find(bus_id.as_ptr(), &raw mut monitor.card) == 0).then_some(monitor)
            }
        }

        /// What the card is doing now. Takes some tenths of a millisecond.
        pub fn read(&self) -> GpuFigures {
            let Self { functions, card } = self;
            let number = |get: Option<GetNumber>| {
                let mut value = 0;
                // SAFETY: the card's handle is NVML's own, and `value` a live variable.
                get.filter(|get| unsafe { get(*card, &raw mut value) } == 0).map(|_| value)
            };
            let of_kind = |get: Option<GetNumberOfKind>, kind: c_int| {
                let mut value = 0;
                // SAFETY: as above; the kind is one that nvml.h lists.
                get.filter(|get| unsafe { get(*card, kind, &raw mut value) } == 0).map(|_| value)
            };
            let (mut load, mut memory, mut throttle) = (Utilization::default(), Memory::default(), 0);
            // SAFETY: as above; the layouts are those of nvml.h.
            let (has_load, has_memory, has_throttle) = unsafe {
                (
                    functions.utilization.is_some_and(|get| get(*card, &raw mut load) == 0),
                    functions.memory.is_some_and(|get| get(*card, &raw mut memory) == 0),
                    functions.throttle.is_some_and(|get| get(*card, &raw mut throttle) == 0),
                )
            };
            let share = |percent: u32| has_load.then_some(percent as f32 / 100.0);
            let watts = |milliwatts: u32| milliwatts as f32 / 1000.0;
            GpuFigures {
                load: share(load.gpu),
                memory_load: share(load.memory),
                memory_used_bytes: has_memory.then_some(memory.used),
                memory_total_bytes: has_memory.then_some(memory.total),
                power_watts: number(functions.power).map(watts),
                power_limit_watts: number(functions.power_limit).map(watts),
                temperature: of_kind(functions.temperature, TEMPERATURE_GPU),
                clock_mhz: of_kind(functions.clock, CLOCK_SM),
                max_clock_mhz: of_kind(functions.max_clock, CLOCK_SM),
                memory_clock_mhz: of_kind(functions.clock, CLOCK_MEMORY),
                throttle: throttle_of(if has_throttle { throttle } else { 0 }),
            }
        }
    }

    impl Drop for GpuMonitor {
        fn drop(&mut self) {
            if let Some(shutdown) = self.functions.shutdown {
                // SAFETY: ends what `open` began; the handle is not used any more.
                unsafe { shutdown() };
            }
        }
    }

    /// Where on the bus the card is: `00000000:3b:00.0`, terminated.
    fn bus_id(ordinal: usize) -> Option<std::ffi::CString> {
        crate::engine::cuda::device_names().ok()?;
        let device = result::device::get(i32::try_from(ordinal).ok()?).ok()?;
        let mut text: [c_char; 32] = [0; 32];
        // SAFETY: the buffer is live and one byte longer than is said, so it ends with a zero.
        let code = unsafe { sys::cuDeviceGetPCIBusId(text.as_mut_ptr(), 31, device) };
        if code != sys::CUresult::CUDA_SUCCESS {
            return None;
        }
        // SAFETY: the driver wrote a terminated string into the buffer.
        Some(unsafe { CStr::from_ptr(text.as_ptr()) }.to_owned())
    }
}

/// Without the feature there is never a card.
#[cfg(not(feature = "cuda"))]
pub struct GpuMonitor;

#[cfg(not(feature = "cuda"))]
impl GpuMonitor {
    pub fn open(_: usize) -> Option<Self> {
        None
    }

    pub fn read(&self) -> GpuFigures {
        GpuFigures::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_told_in_words_and_an_idle_card_is_held_back_by_nothing() {
        assert_eq!(throttle_of(0x1 | 0x100), []);
        assert_eq!(throttle_of(0x4 | 0x40), [Throttle::PowerCap, Throttle::Heat]);
        assert_eq!(throttle_of(0x8 | 0x80 | 0x2), [Throttle::PowerSupply, Throttle::Hardware, Throttle::Setting]);
        assert!(Throttle::Heat.is_fault() && !Throttle::PowerCap.is_fault());
    }

    #[test]
    fn what_is_absent_is_not_written_and_comes_back_absent() {
        let figures = GpuFigures { load: Some(0.5), throttle: vec![Throttle::PowerCap], ..GpuFigures::default() };
        let text = serde_json::to_string(&figures).unwrap_or_default();
        assert_eq!(text, r#"{"load":0.5,"throttle":["power-cap"]}"#);
        assert_eq!(serde_json::from_str::<GpuFigures>(&text).ok(), Some(figures));
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn a_card_that_is_not_there_has_nothing_to_tell() {
        assert!(GpuMonitor::open(99).is_none());
    }

    #[cfg(feature = "gpu-tests")]
    #[test]
    fn the_first_card_tells_its_memory_load_and_temperature() {
        let _turn = crate::engine::cuda::testing::test_gpu();
        let figures = GpuMonitor::open(0).map(|monitor| monitor.read()).unwrap_or_default();
        assert!(figures.load.is_some_and(|load| (0.0..=1.0).contains(&load)), "{figures:?}");
        let (used, total) = (figures.memory_used_bytes.unwrap_or(0), figures.memory_total_bytes.unwrap_or(0));
        assert!(0 < used && used <= total, "{figures:?}");
        assert!(figures.temperature.is_some_and(|degrees| (1..120).contains(&degrees)), "{figures:?}");
    }
}
