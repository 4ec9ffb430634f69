export { FakeClock } from '../../testkit/fake-clock.ts'
