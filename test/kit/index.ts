/**
 * `roomful/test`: runs your rooms in a test, with real clients and a simulated clock. Works with any test runner.
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
