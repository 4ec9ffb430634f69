/**
 * `roomful/test`: rooms, nodes, store and SDK in one process with a simulated clock, for any test runner.
 * @module roomful/test
 */
export {
  type Player,
  type Players,
  type Seats,
  type TestOptions,
  type TestRooms,
  testRooms,
} from './rooms.ts'
