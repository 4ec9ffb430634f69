export { FakeClock } from '../kit/fake-clock.ts'
